drop function windlass.claim_v2;
drop function windlass.ready_lines_v1;
alter table windlass.idle drop column prefixes;
alter table windlass.worker drop column prefixes;
drop function windlass.queue_prefixes;
