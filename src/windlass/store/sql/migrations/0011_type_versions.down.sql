drop view windlass.living_version;
alter table windlass.worker drop column digests;
drop table windlass.type_version;
