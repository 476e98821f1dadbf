-- The names that submissions use: queues, types that no worker has declared, tags. See migration 0016.

-- name: new_names
-- Those of the names that nobody has used. A queue that a living worker names, and a tag that some job has, are in use
-- whatever is noted of them. Primary keys only; of workers those that live.
select n.name from unnest($2::text[]) as n (name)
where not exists (select from windlass.known_name k where k.kind = $1 and k.name = n.name)
  and case $1
    when 'queue' then not exists (select from windlass.worker w where w.died_at is null and n.name = any (w.queues))
    when 'tag' then not exists (select from windlass.tag t where t.tag = n.name)
      and not exists (select from windlass.tag_kept t where t.tag = n.name)
    else true
  end;

-- name: count_names
-- How many names of a kind there are.
select count(*) as n from windlass.known_name k where k.kind = $1;

-- name: note_names
-- Remember names. Guard: the name; of two who note it at once one does.
insert into windlass.known_name (kind, name, noted_at)
select $1, n.name, now() from unnest($2::text[]) as n (name)
order by n.name
on conflict do nothing;

-- name: note_used_names
-- Remember the queues, and the types that nobody has declared, that have jobs: programs that enqueue by themselves are
-- trusted and ask nobody. From the counts.
insert into windlass.known_name (kind, name, noted_at)
select u.kind, u.name, now()
from (
  select 'queue' as kind, t.queue as name from windlass.tallied t
  union
  select 'type', t.type from windlass.tallied t
  where not exists (select from windlass.job_type j where j.name = t.type)
) u
where not exists (select from windlass.known_name k where k.kind = u.kind and k.name = u.name)
order by u.kind, u.name
on conflict do nothing
returning name;

-- name: forget_names
-- Forget queues and types that have had no job for a while, and types that were declared meanwhile. Guard: noted long
-- ago, or the first job of a new name might not be counted yet.
with used as materialized (
  select 'queue' as kind, t.queue as name from windlass.tallied t
  union
  select 'type', t.type from windlass.tallied t
  where not exists (select from windlass.job_type j where j.name = t.type)
)
delete from windlass.known_name k
where k.kind in ('queue', 'type') and k.noted_at < now() - make_interval(secs => $1)
  and not exists (select from used u where u.kind = k.kind and u.name = k.name)
returning k.kind, k.name;

-- name: forget_queues
-- Forget the settings of queues that are as those of a queue without settings, and have no jobs. Guard: a pause
-- meanwhile is seen, for the row is read again before it goes.
delete from windlass.queue q
where not q.paused and not exists (select from windlass.tallied t where t.queue = q.name)
returning q.name;

-- name: old_tags
-- Tags that were noted long ago, by name, after the last one seen. Index: known_name_pkey.
select k.name from windlass.known_name k
where k.kind = 'tag' and k.name > $2 and k.noted_at < now() - make_interval(secs => $1)
order by k.name limit $3;

-- name: forget_tags
-- Forget those of the given tags that no job has. Index: tag_pkey, one probe for each partition.
delete from windlass.known_name k
where k.kind = 'tag' and k.name = any ($1::text[])
  and not exists (select from windlass.tag t where t.tag = k.name)
  and not exists (select from windlass.tag_kept t where t.tag = k.name)
returning k.name;
