drop table windlass.idle;
create unlogged table windlass.idle (
  worker_id uuid primary key,
  since     timestamptz not null,
  free      integer not null,
  queues    text[] not null,
  types     text[] not null,
  pops      boolean not null default false
);
create index idle_since on windlass.idle (since, worker_id);
