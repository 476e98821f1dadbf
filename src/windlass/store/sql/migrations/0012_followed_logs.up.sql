-- serves: 7
-- The logs of attempts that somebody follows while they run: a row is made by whoever follows, and filled by the job's worker about
-- once a second until `until`. Unlogged: after a crash of the server nobody follows anything.
create unlogged table windlass.followed_log (
  job_id  uuid primary key,
  until   timestamptz not null,
  attempt integer,
  token   uuid,
  log     text
);
