drop table windlass.server;
