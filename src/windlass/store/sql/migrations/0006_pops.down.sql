drop table windlass.idle;
create unlogged table windlass.idle (
  worker_id uuid primary key,
  since     timestamptz not null,
  free      integer not null,
  queues    text[] not null,
  types     text[] not null
);
