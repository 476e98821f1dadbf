-- serves: 5
-- How a resting worker is to be told of work: by NOTIFY, or, where it cannot hear that (behind a pooler, or while its
-- connection is lost), through the Redis it pops its hints from. Made anew: what is in it is said again within a poll.
drop table windlass.idle;
create unlogged table windlass.idle (
  worker_id uuid primary key,
  since     timestamptz not null,
  free      integer not null,
  queues    text[] not null,
  types     text[] not null,
  pops      boolean not null default false  -- workers of before do not say
);
-- The one that rests longest is found without a look at all of them.
create index idle_since on windlass.idle (since, worker_id);
