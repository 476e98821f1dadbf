drop table windlass.rollup;
drop table windlass.rollup_delta;
