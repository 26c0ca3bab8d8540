// A stream of the API that stays open: the browser reconnects with its Last-Event-ID by itself; where it gives up
// (an error answer, a restart behind a proxy), the stream is opened anew after a pause that grows.

const PAUSES_MS = [1000, 2000, 4000, 8000, 15000];

export function follow(path, handlers, onState) {
  let source = null;
  let failures = 0;
  let timer = 0;

  function open() {
    source = new EventSource(`/api/v1${path}`);
    source.onopen = () => {
      failures = 0;
      onState("live");
    };
    source.onerror = () => {
      onState("lost");
      if (source.readyState === EventSource.CLOSED) {
        timer = setTimeout(open, PAUSES_MS[Math.min(failures++, PAUSES_MS.length - 1)] * (0.5 + Math.random()));
      }
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  }

  function close() {
    clearTimeout(timer);
    source?.close();
  }

  open();
  addEventListener("pagehide", close);
  return {
    close,
    // From the start, when something was missed.
    restart() {
      close();
      open();
    },
  };
}
