-- Who may come in, with what, and who did what. What expires does so by the database's clock, whatever that of the API.

-- name: add_user
-- Guard: the name, in whatever case. With its quotas and namespace, if there are any ($4: its subject).
with added as (
  insert into windlass.account (name, created_at, password_hash, scopes) values ($1, now(), $2, $3)
  on conflict do nothing
  returning name, password_hash, scopes, created_at
), limited as (
  insert into windlass.submitter (subject, namespace, waiting_max, threads_max, thread_demand_max, timeout_s_max,
    submissions_per_s)
  select $4::text, $5::text, $6::integer, $7::integer, $8::integer, $9::double precision, $10::double precision
  from added
  where num_nonnulls($5, $6, $7, $8, $9, $10) > 0
  on conflict (subject) do update set namespace = excluded.namespace, waiting_max = excluded.waiting_max,
    threads_max = excluded.threads_max, thread_demand_max = excluded.thread_demand_max,
    timeout_s_max = excluded.timeout_s_max, submissions_per_s = excluded.submissions_per_s
)
select name, password_hash, scopes, created_at from added;

-- name: user
select name, password_hash, scopes, created_at from windlass.account where name = $1;

-- name: users
select name, password_hash, scopes, created_at from windlass.account order by name limit $1;

-- name: set_password
update windlass.account set password_hash = $2 where name = $1 returning name, password_hash, scopes, created_at;

-- name: set_scopes
update windlass.account set scopes = $2 where name = $1 returning name, password_hash, scopes, created_at;

-- name: remove_user
-- With its quotas ($2: its subject), or the next user of that name would have them.
with quotas as (
  delete from windlass.submitter s where s.subject = $2
)
delete from windlass.account where name = $1 returning name;

-- name: submitters
-- Every subject that has a quota or a namespace of another name.
select subject, namespace, waiting_max, threads_max, thread_demand_max, timeout_s_max, submissions_per_s
from windlass.submitter
where num_nonnulls(namespace, waiting_max, threads_max, thread_demand_max, timeout_s_max, submissions_per_s) > 0
order by subject;

-- name: set_quota
insert into windlass.submitter (subject, waiting_max, threads_max, thread_demand_max, timeout_s_max, submissions_per_s)
values ($1, $2, $3, $4, $5, $6)
on conflict (subject) do update set waiting_max = excluded.waiting_max, threads_max = excluded.threads_max,
  thread_demand_max = excluded.thread_demand_max, timeout_s_max = excluded.timeout_s_max,
  submissions_per_s = excluded.submissions_per_s;

-- name: set_namespace
insert into windlass.submitter (subject, namespace) values ($1, $2)
on conflict (subject) do update set namespace = excluded.namespace;

-- name: add_key
-- With its quotas and namespace, as add_user.
with limited as (
  insert into windlass.submitter (subject, namespace, waiting_max, threads_max, thread_demand_max, timeout_s_max,
    submissions_per_s)
  select $7::text, $8::text, $9::integer, $10::integer, $11::integer, $12::double precision, $13::double precision
  where num_nonnulls($8, $9, $10, $11, $12, $13) > 0
)
insert into windlass.api_key (id, created_at, name, prefix, digest, scopes, expires_at) values ($1, now(), $2, $3, $4, $5, $6)
returning id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at;

-- name: key_by_id
select id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at from windlass.api_key where id = $1;

-- name: key
-- A key that may be used now. That it was is noted once a minute, and only by one of those who use it at the same time:
-- a program that exchanges its key often must not wait for the disk, nor for itself.
with live as materialized (
  select k.* from windlass.api_key k
  where k.digest = $1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
), due as (
  select k.id from windlass.api_key k
  where k.id = any (array(select l.id from live l))
    and (k.last_used_at is null or k.last_used_at < now() - interval '1 minute')
  for no key update skip locked
), used as (
  update windlass.api_key k set last_used_at = now() where k.id = any (array(select d.id from due d))
)
select id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at from live;

-- name: keys
select id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at
from windlass.api_key order by created_at desc, id desc limit $1;

-- name: revoke_key
-- May be repeated; the first time counts.
update windlass.api_key set revoked_at = coalesce(revoked_at, now()) where id = $1
returning id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at;

-- name: spend
-- One row for the first who asks: whoever comes at the same time waits for that one's commit, and gets none. None once its
-- time has passed either, for then the row that would refuse it is swept.
insert into windlass.spent (token_id, until) select $1, $2::timestamptz where $2::timestamptz > now()
on conflict do nothing
returning token_id;

-- name: revoke
insert into windlass.revoked as r (what, at, until) values ($1, now(), $2)
on conflict (what) do update set at = excluded.at, until = greatest(r.until, excluded.until);

-- name: revoked
-- For a while past their time: clocks of hosts differ, and a token is taken for some seconds longer than it says.
select what, at from windlass.revoked where until > now() - interval '5 minutes';

-- name: sweep_spent
-- Forget tokens that would be refused for their age. Index: spent_until.
with old as materialized (
  select s.token_id from windlass.spent s where s.until < now() - interval '1 hour'
  order by s.until limit $1 for update skip locked
)
delete from windlass.spent s where s.token_id = any (array(select o.token_id from old o)) returning s.token_id;

-- name: sweep_revoked
delete from windlass.revoked where until < now() - interval '1 hour' returning what;

-- name: note
insert into windlass.audit (at, actor, action, target, detail, request_id) values (now(), $1, $2, $3, $4::text::json, $5);

-- name: expire_audit
-- Remove one page of old entries. Index: the primary key.
select windlass.expire_audit_v1($1, $2) as gone;

-- name: audit
-- Index: the primary key, backwards.
select id, at, actor, action, target, detail, request_id from windlass.audit
where id < $1 order by id desc limit $2;
