-- What a seller is shown is counted when it is asked for: no counter that every booking would have to wait for. The
-- index finds an event's bookings; no column of it ever changes, so updates of bookings stay HOT.
create index bookings_of_event on booking.bookings (event_id, id);
