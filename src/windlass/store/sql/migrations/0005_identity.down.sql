drop table windlass.identity;
