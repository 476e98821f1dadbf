-- serves: 20
-- What people ask of a worker and want to know of it. `stopping`: it was asked to give its jobs back at once and to start anew.
-- `version`: of Windlass, when it registered. `memory_bytes`: of its process, at its last heartbeat.
alter table windlass.worker
  add column stopping boolean not null default false,
  add column memory_bytes bigint,
  add column version text;
