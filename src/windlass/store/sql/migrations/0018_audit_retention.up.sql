-- serves: 17
-- Removes the oldest entries of the audit that are past their retention, one page; returns how many. With the rights of the
-- schema's owner: workers run code of others, and a right to delete would let it cover its tracks. For the same reason the
-- last 30 days stay, whatever is asked. Entries are numbered in the order of time: by the primary key, from the front.
create function windlass.expire_audit_v1(kept_s double precision, most integer) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp
as $$
  with oldest as materialized (
    select a.id, a.at from windlass.audit a order by a.id limit most
  ), gone as (
    delete from windlass.audit a
    where a.id in (
      select o.id from oldest o
      where o.at < now() - make_interval(secs => greatest(kept_s, 30 * 86400.0))
    )
    returning a.id
  )
  select count(*) from gone
$$;
