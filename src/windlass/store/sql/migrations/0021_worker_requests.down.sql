alter table windlass.worker drop column stopping, drop column memory_bytes, drop column version;
