alter table windlass.job_type drop column isolation;
