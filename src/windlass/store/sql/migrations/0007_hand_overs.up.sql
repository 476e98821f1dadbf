-- serves: 6
-- A worker that rests with all its threads free is handed a job by the commit that stores it, for as long as it has lately shown
-- that it lives (hand_until). It is told on a channel named by hand_key, a secret of those who may read this: anyone who may
-- connect may listen and notify, and must neither see payloads nor have a job run by that. Null: it is only told to look.
-- Made anew: what is in it is said again within a poll. It is written at every poll of an idle worker, so there is room to.
drop table windlass.idle;
create unlogged table windlass.idle (
  worker_id  uuid primary key,
  since      timestamptz not null,
  free       integer not null,
  queues     text[] not null,
  types      text[] not null,
  pops       boolean not null default false,
  hand_key   uuid,  -- workers of before do not say
  hand_until timestamptz
) with (fillfactor = 50);
create index idle_since on windlass.idle (since, worker_id);
