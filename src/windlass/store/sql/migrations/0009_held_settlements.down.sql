drop function windlass.settle_v2;
update windlass.attempt set status = 'failed' where status = 'held';
update windlass.attempt_kept set status = 'failed' where status = 'held';
alter table windlass.attempt drop constraint attempt_status_check,
  add constraint attempt_status_check check (status in ('completed', 'failed', 'cancelled', 'lost'));
alter table windlass.attempt_kept drop constraint attempt_status_check,
  add constraint attempt_status_check check (status in ('completed', 'failed', 'cancelled', 'lost'));
