-- Who the store is right now. What else remembers its jobs may remember some that this one has lost.

-- name: identity
-- Another one after every way in which jobs can be lost or come back: a dump that was restored (the row was written by
-- another transaction, the table or the database is another), a copy of its files (the server was started since, and
-- its system identifier is another if it was made anew), a standby that took over (another server, another timeline).
-- The timeline from the log that is written, not from the last checkpoint, which is behind after a promotion.
select i.key, concat_ws(' ', i.id, i.xmin, i.tableoid::bigint, d.oid::bigint, extract(epoch from pg_postmaster_start_time()),
  c.system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)) as marks
from windlass.identity i cross join pg_control_system() c join pg_database d on d.datname = current_database();

-- name: identity_plain
-- The same where we may not look at the server's insides: a restart of it, or another one, still makes the difference.
select i.key, concat_ws(' ', i.id, i.xmin, i.tableoid::bigint, d.oid::bigint, extract(epoch from pg_postmaster_start_time()))
  as marks
from windlass.identity i join pg_database d on d.datname = current_database();
