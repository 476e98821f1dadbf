-- serves: 7
-- During a deploy, workers of two versions declare one type differently. Every version is kept: which top-level fields its
-- payload has (null: any), and its schema. A worker that meets a field it does not know finds out here whether a newer one
-- does, and the API checks payloads only while all living workers of a type agree.
create table windlass.type_version (
  type              text not null,
  digest            text not null,
  first_declared_at timestamptz not null,
  declared_at       timestamptz not null,  -- at most a day old while somebody has it
  fields            text[],
  schema            json,
  primary key (type, digest)
);

-- The version of each of its types, in their order. Workers of before do not say.
alter table windlass.worker add column digests text[];

-- The versions of types that living workers have.
create view windlass.living_version as
select t.type, t.digest, w.draining
from windlass.worker w cross join unnest(w.types, w.digests) as t (type, digest)
where w.died_at is null and w.lease_until > now();
