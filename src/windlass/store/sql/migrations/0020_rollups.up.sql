-- serves: 19
-- What has happened over time, for charts: by the minute for two days, by the hour for sixty. Deltas are appended by whoever
-- has something to tell and are folded by the leader every few seconds. They are unlogged: a crash of the database costs the
-- charts a few seconds, and nobody waits for the disk.
create unlogged table windlass.rollup_delta (
  at        timestamptz not null default now(),
  completed integer not null default 0,
  failed    integer not null default 0,
  cancelled integer not null default 0,
  retried   integer not null default 0,
  queue     text not null,
  type      text not null,
  waited    integer[],
  ran       integer[]
);

-- One row per step, queue and type. The row with an empty queue and type is the total of its step: it also holds what came
-- from more pairs than a step keeps. `waited` and `ran` count attempts by how long they waited and ran (see rollups.py).
create table windlass.rollup (
  at        timestamptz not null,
  completed bigint not null,
  failed    bigint not null,
  cancelled bigint not null,
  retried   bigint not null,
  step_s    integer not null check (step_s in (60, 3600)),
  queue     text not null,
  type      text not null,
  waited    bigint[],
  ran       bigint[],
  primary key (step_s, at, queue, type)
);
