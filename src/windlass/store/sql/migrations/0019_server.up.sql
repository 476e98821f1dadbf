-- serves: 7
-- What the leader knows of the server that grants leases: one row, which the leader writes with its term, about once a second.
-- Restarted, replaced or not reached is told apart here, and not by how long some process of ours has lived.
create table windlass.server (
  only_one      boolean primary key default true check (only_one),
  started_at    timestamptz not null,  -- of the server that was asked last: a restart or a failover changes it
  clock_since   timestamptz not null,  -- since then its clock has granted the leases, and has not jumped ahead
  reached_since timestamptz not null,  -- since then some leader has reached it without a longer gap
  reached_at    timestamptz not null
);
insert into windlass.server (started_at, clock_since, reached_since, reached_at)
values (pg_postmaster_start_time(), now(), now(), now());
