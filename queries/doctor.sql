-- The questions of engine/doctor. Each reads the catalog and the server's views alone, as any role may; what a role without
-- pg_read_all_stats is not shown comes back as such.

-- name: DoctorServer :one
SELECT current_setting('server_version_num')::int AS version_num, current_setting('server_version')::text AS version,
  current_setting('fsync')::boolean AS fsync, current_setting('full_page_writes')::boolean AS full_page_writes,
  current_setting('synchronous_commit')::text AS synchronous_commit,
  (SELECT s.source FROM pg_catalog.pg_settings AS s WHERE s.name = 'synchronous_commit')::text AS synchronous_commit_source,
  current_setting('autovacuum')::boolean AS autovacuum, current_setting('track_counts')::boolean AS track_counts,
  pg_is_in_recovery()::boolean AS in_recovery, current_setting('transaction_read_only')::boolean AS read_only,
  current_user::text AS role, current_database()::text AS database;

-- name: DoctorSettingsOf :many
-- What ALTER ROLE and ALTER DATABASE have set, for this database, of one name. Empty role or database: for all.
SELECT coalesce((SELECT r.rolname FROM pg_catalog.pg_roles AS r WHERE r.oid = s.setrole), '')::text AS role,
  coalesce((SELECT d.datname FROM pg_catalog.pg_database AS d WHERE d.oid = s.setdatabase), '')::text AS database,
  split_part(c.entry, '=', 2)::text AS value
FROM pg_catalog.pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS c(entry)
WHERE split_part(c.entry, '=', 1) = @name::text AND s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()))
ORDER BY 1, 2;

-- name: DoctorRights :many
-- Per table what the role may do. A table that is not there has no row.
SELECT w.name::text AS name, c.relkind::text AS kind,
  (has_table_privilege(c.oid, 'SELECT'))::boolean AS may_select, (has_table_privilege(c.oid, 'INSERT'))::boolean AS may_insert,
  (has_table_privilege(c.oid, 'UPDATE'))::boolean AS may_update, (has_table_privilege(c.oid, 'DELETE'))::boolean AS may_delete
FROM unnest(@names::text[]) AS w(name) JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(w.name)
ORDER BY w.name;

-- name: DoctorSchemaRights :one
-- The schema that the tables stand in, seen or not, and which functions of their owner in it the role may not call.
SELECT n.nspname::text AS name, (has_schema_privilege(n.oid, 'USAGE'))::boolean AS may_use,
  (SELECT coalesce(array_agg(p.proname ORDER BY p.proname), '{}') FROM pg_catalog.pg_proc AS p
    WHERE p.pronamespace = n.oid AND p.proowner = c.relowner AND NOT has_function_privilege(p.oid, 'EXECUTE'))::text[] AS not_callable
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = 'job_claims' AND c.relkind = 'r' ORDER BY c.oid IS NOT DISTINCT FROM to_regclass('job_claims') DESC, n.nspname LIMIT 1;

-- name: DoctorTransactions :many
-- Sessions whose transaction has been open for so long, the oldest first. Autovacuum's own end by themselves.
SELECT a.pid::int AS pid, coalesce(a.usename, '')::text AS role, coalesce(a.application_name, '')::text AS application, coalesce(a.state, '')::text AS state,
  (extract(epoch FROM clock_timestamp() - a.xact_start))::float8 AS age_seconds
FROM pg_catalog.pg_stat_activity AS a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
  AND a.xact_start < clock_timestamp() - make_interval(secs => @least_seconds::float8)
ORDER BY a.xact_start LIMIT @max_rows::int;

-- name: DoctorHidden :one
-- Sessions of which this role is not told what they do: not even whose kind they are.
SELECT count(*)::bigint FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database() AND a.backend_type IS NULL;

-- name: DoctorPrepared :many
SELECT p.gid::text AS gid, p.owner::text AS owner, (extract(epoch FROM clock_timestamp() - p.prepared))::float8 AS age_seconds
FROM pg_catalog.pg_prepared_xacts AS p WHERE p.database = current_database() ORDER BY p.prepared LIMIT @max_rows::int;

-- name: DoctorSlots :many
-- Slots that nobody reads: what they keep of the log, and of dead rows.
SELECT s.slot_name::text AS name, s.slot_type::text AS kind, (s.xmin IS NOT NULL)::boolean AS holds_rows,
  coalesce(CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) END, 0)::bigint AS kept_bytes
FROM pg_catalog.pg_replication_slots AS s WHERE NOT s.active ORDER BY s.slot_name LIMIT @max_rows::int;

-- name: DoctorTablesWithoutVacuum :many
SELECT c.relname::text FROM unnest(@names::text[]) AS w(name) JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(w.name)
CROSS JOIN LATERAL unnest(c.reloptions) AS o(entry)
WHERE split_part(o.entry, '=', 1) = 'autovacuum_enabled' AND NOT split_part(o.entry, '=', 2)::boolean ORDER BY 1;

-- name: DoctorConnections :one
-- Limits of -1 are none. What kind a session is of is shown to few, its database and role to all.
SELECT current_setting('max_connections')::int AS max_connections, current_setting('superuser_reserved_connections')::int AS reserved,
  (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.datname IS NOT NULL OR a.backend_type = 'walsender')::int AS used,
  d.datconnlimit::int AS database_limit,
  (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database())::int AS database_used,
  r.rolconnlimit::int AS role_limit,
  (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.usename = current_user)::int AS role_used,
  (r.rolsuper)::boolean AS superuser
FROM pg_catalog.pg_database AS d, pg_catalog.pg_roles AS r WHERE d.datname = current_database() AND r.rolname = current_user;

-- name: DoctorClock :one
SELECT clock_timestamp()::timestamptz AS now;

-- name: DoctorBackend :one
-- The process that answers: a pooler tells its clients another.
SELECT pg_backend_pid()::bigint AS pid;
