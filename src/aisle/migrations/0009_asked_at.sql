-- When a booking that still waits for its seats was last asked for again, so that all of them get their turn.
alter table booking.bookings add column asked_at timestamptz;
