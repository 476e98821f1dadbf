-- serves: 7
-- The names that submissions through the API have used: of queues, of types that no worker has declared, of tags. A
-- name that is not here is new, and how many there may be is bounded: a submitter who makes names up would otherwise
-- make every list, count and fold longer for everybody. Names in use at this moment are known from the start; those of
-- tags are looked up in `tag`.
create table windlass.known_name (
  kind     text not null check (kind in ('queue', 'type', 'tag')),
  name     text not null,
  noted_at timestamptz not null,
  primary key (kind, name)
);
insert into windlass.known_name (kind, name, noted_at)
select distinct 'queue', t.queue, now() from windlass.tallied t
union
select distinct 'type', t.type, now() from windlass.tallied t
where not exists (select from windlass.job_type j where j.name = t.type);
