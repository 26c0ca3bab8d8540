// The camera, where the browser can read barcodes; each code is told once until another one was in front of it.

const LOOK_MS = 150;
const FORGET_MS = 4000;

export async function canScan() {
  if (!("BarcodeDetector" in window) || !navigator.mediaDevices?.getUserMedia) return false;
  return (await BarcodeDetector.getSupportedFormats().catch(() => [])).includes("qr_code");
}

export async function startCamera(video, onCode) {
  const detector = new BarcodeDetector({ formats: ["qr_code"] });
  video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  await video.play();
  let [last, lastAt] = ["", 0];
  setInterval(async () => {
    const [found] = await detector.detect(video).catch(() => []);
    if (!found) return;
    const isSame = found.rawValue === last && Date.now() - lastAt < FORGET_MS;
    [last, lastAt] = [found.rawValue, Date.now()];
    if (!isSame) onCode(found.rawValue);
  }, LOOK_MS);
}
