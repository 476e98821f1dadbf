alter table windlass.job_type drop column at_most_once;
drop table windlass.effect;
