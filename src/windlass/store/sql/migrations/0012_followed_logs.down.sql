drop table windlass.followed_log;
