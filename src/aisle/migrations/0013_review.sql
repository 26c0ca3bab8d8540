-- Money that is not what was asked for: what the provider has, and what a person decided about it.
alter table payment.payments
    add column held bigint check (held >= 0),
    add column held_currency char(3),
    add column decision text not null default '' check (decision in ('', 'accept', 'refund')),
    add check ((held is null) = (held_currency is null));
alter table payment.payments drop constraint payments_check;
alter table payment.payments add constraint payments_refunded_of_money check (refunded between 0 and coalesce(held, amount));
create index payments_in_review on payment.payments (event_id, id) where state = 'REVIEW';

-- `waived`: less was accepted than the seats cost, so that sales stay the price of what was delivered; `unwaived`: and
-- the seats went back.
alter table payment.ledger drop constraint ledger_what_check;
alter table payment.ledger add constraint ledger_what_check check (what in (
    'sale', 'late', 'late_sale', 'late_return', 'refund', 'refunded', 'waived', 'unwaived'
));
