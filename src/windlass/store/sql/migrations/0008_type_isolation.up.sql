-- serves: 7
-- Where the handlers of a type run, so that it can be shown with its other defaults. Workers of before do not say.
alter table windlass.job_type add column isolation text not null default 'none';
