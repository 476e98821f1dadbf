-- What the role of a connection may do: asked at the start, so that what it lacks is known days before it is needed.

-- name: lacking_rights
-- Which of these rights ($3) on these tables and views ($2) the role lacks. What is not there at all is lacking, too.
select w.name, w.privilege
from unnest($2::text[], $3::text[]) as w (name, privilege)
left join pg_namespace n on n.nspname = $1
left join pg_class c on c.relnamespace = n.oid and c.relname = w.name
where c.oid is null or not has_schema_privilege(n.oid, 'usage') or not has_table_privilege(c.oid, w.privilege);

-- name: partition_rights
-- Whether the role can make partitions and remove them: it creates tables in the schema, and has the rights of the owner of the
-- tables. `foreign_owner`: the owner of a table or partition whose rights it has not, if there is one.
select current_user::text as role, coalesce(bool_and(has_schema_privilege(n.oid, 'create')), false) as creates,
  min(pg_get_userbyid(c.relowner)::text) filter (where not pg_has_role(c.relowner, 'usage')) as foreign_owner
from pg_namespace n
join pg_class c on c.relnamespace = n.oid
where n.nspname = $1
  and (c.relkind = 'p' and c.relname in ('job', 'tag', 'outcome', 'attempt')
    or c.relkind = 'r' and c.relname ~ '^(job|tag|outcome|attempt)_\d{8}_\d{8}$');

-- name: partition_owner
-- Whom the partitions belong to, unless that is the role itself: one that is made by a member of the owner is given to the owner, or
-- other members could not remove it.
select pg_get_userbyid(c.relowner)::text as owner
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = $2 and pg_get_userbyid(c.relowner) <> current_user;
