alter table windlass.idempotency drop column namespaced;
alter table windlass.job drop column namespace;
alter table windlass.job_kept drop column namespace;
drop table windlass.charge;
drop table windlass.submitter;
