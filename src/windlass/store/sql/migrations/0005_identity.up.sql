-- serves: 4
-- Who this store is, and a secret of its own: what is kept elsewhere about its jobs, in a Redis say, is signed with it and
-- believed by nobody else. Both are random. One row.
create table windlass.identity (
  one boolean primary key default true check (one),
  id  uuid not null,
  key bytea not null
);
insert into windlass.identity (id, key)
values (gen_random_uuid(), decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));
