-- name: InsertUser :one
-- No row: the name is taken.
INSERT INTO console_users AS u (name, password_hash, role, queues) VALUES (@name, @password_hash, @role, sqlc.narg('queues')::text[])
ON CONFLICT (name) DO NOTHING RETURNING u.id, u.name, u.role, u.created_at;

-- name: HasUsers :one
SELECT EXISTS (SELECT 1 FROM console_users AS u) AS any_users;

-- name: LockUsers :exec
-- Waits for whoever is adding or changing a user, and keeps others from it: the first admin is made once, and the last one
-- stays. It must be the first lock of its transaction.
LOCK TABLE console_users IN SHARE ROW EXCLUSIVE MODE;

-- name: GetUserByName :one
SELECT u.id, u.name, u.role, u.queues, u.password_hash, u.generation, u.disabled_at FROM console_users AS u WHERE u.name = @name;

-- name: ListUsers :many
-- Of all, or of one name.
SELECT u.id, u.name, u.role, u.queues, u.generation, u.created_at, u.disabled_at, u.signed_in_at,
  (SELECT count(*) FROM console_sessions AS s WHERE s.user_id = u.id
    AND s.used_at > now() - make_interval(secs => @idle_seconds::float8)
    AND s.created_at > now() - make_interval(secs => @total_seconds::float8))::int AS sessions
FROM console_users AS u WHERE (sqlc.narg('name')::text IS NULL OR u.name = sqlc.narg('name')::text) ORDER BY u.name LIMIT @max_rows::int;

-- name: ListAdmins :many
-- Those who may do everything.
SELECT u.name FROM console_users AS u WHERE u.role = 'admin' AND u.disabled_at IS NULL AND u.queues IS NULL ORDER BY u.id;

-- name: ChangeUser :one
-- What a person may do or knows has changed: the generation rises, which locks out every sign-in that has begun. What is
-- NULL stays; an empty list of queues is every queue. The row lock makes a sign-in's last step wait; the caller then deletes
-- the sessions, with a statement of its own that sees what was committed before the lock was had.
WITH was AS (SELECT u.id, u.role, u.queues, u.generation, u.disabled_at FROM console_users AS u WHERE u.name = @name FOR UPDATE)
UPDATE console_users AS u SET
  generation = u.generation + 1,
  role = coalesce(sqlc.narg('role')::text, u.role),
  queues = CASE WHEN sqlc.narg('queues')::text[] IS NULL THEN u.queues ELSE nullif(sqlc.narg('queues')::text[], '{}') END,
  password_hash = coalesce(sqlc.narg('password_hash')::text, u.password_hash),
  disabled_at = CASE WHEN sqlc.narg('disabled')::boolean IS NULL THEN u.disabled_at
    WHEN sqlc.narg('disabled')::boolean THEN coalesce(u.disabled_at, now()) END
FROM was WHERE u.id = was.id
RETURNING u.id, was.role AS old_role, was.queues AS old_queues, was.generation AS old_generation, u.role, u.queues, (was.disabled_at IS NOT NULL)::boolean AS was_disabled;

-- name: DeleteSessionsOf :execrows
DELETE FROM console_sessions AS s WHERE s.user_id = @user_id;

-- name: DeleteOtherSessions :execrows
-- All of a person's but the one that asks.
DELETE FROM console_sessions AS s
WHERE s.user_id = (SELECT k.user_id FROM console_sessions AS k WHERE k.token_hash = @token_hash) AND s.token_hash <> @token_hash;

-- name: ConfirmSignIn :execrows
-- The last step of a sign-in, once its password was found right. No row: role, password or access have changed since.
UPDATE console_users AS u SET signed_in_at = now(), password_hash = coalesce(sqlc.narg('new_hash')::text, u.password_hash)
WHERE u.id = @id AND u.generation = @generation AND u.disabled_at IS NULL;

-- name: InsertSession :one
INSERT INTO console_sessions AS s (token_hash, user_id, user_agent, address) VALUES (@token_hash, @user_id, @user_agent, @address)
RETURNING s.id, s.created_at, s.used_at;

-- name: GetSession :one
-- A person's role and access are read with each request, so that a change is felt with the next one.
SELECT s.id, s.created_at, s.used_at, s.user_agent, s.address, u.id AS user_id, u.name, u.role, u.queues
FROM console_sessions AS s JOIN console_users AS u ON u.id = s.user_id
WHERE s.token_hash = @token_hash AND u.disabled_at IS NULL
  AND s.used_at > now() - make_interval(secs => @idle_seconds::float8)
  AND s.created_at > now() - make_interval(secs => @total_seconds::float8);

-- name: TouchSession :execrows
-- At most once in stale_seconds: pages are read far more often than that.
UPDATE console_sessions AS s SET used_at = now()
WHERE s.token_hash = @token_hash AND s.used_at < now() - make_interval(secs => @stale_seconds::float8)
  AND s.used_at > now() - make_interval(secs => @idle_seconds::float8);

-- name: ListSessionsOf :many
SELECT s.id, s.created_at, s.used_at, s.user_agent, s.address
FROM console_sessions AS s JOIN console_users AS u ON u.id = s.user_id
WHERE u.name = @name
  AND s.used_at > now() - make_interval(secs => @idle_seconds::float8)
  AND s.created_at > now() - make_interval(secs => @total_seconds::float8)
ORDER BY s.used_at DESC, s.id DESC LIMIT @max_rows::int;

-- name: DeleteSession :one
WITH gone AS (DELETE FROM console_sessions AS s WHERE s.token_hash = @token_hash RETURNING s.id, s.user_id)
SELECT gone.id, u.name FROM gone JOIN console_users AS u ON u.id = gone.user_id;

-- name: DeleteSessionByID :execrows
DELETE FROM console_sessions AS s WHERE s.id = @id AND s.user_id = (SELECT u.id FROM console_users AS u WHERE u.name = @name);

-- name: GetSignInWait :one
-- Seconds until another try is allowed; 0 is now. A look that counts nothing.
SELECT coalesce(max(extract(epoch FROM t.blocked_until - clock_timestamp())), 0)::float8 AS seconds FROM sign_in_tries AS t
WHERE (t.kind = 'address' AND t.subject = @address) OR (t.kind = 'name' AND t.subject = @name);

-- name: CountNameTry :one
-- Counts a try of a name before its password is looked at. No row: the name or the address must wait, and nothing is
-- counted. clock_timestamp, since now() is the statement's beginning, and another may have held the row since. What has
-- been quiet for forget_seconds begins anew.
INSERT INTO sign_in_tries AS t (kind, subject, failures, last_at, blocked_until)
SELECT 'name', @name, 1, clock_timestamp(), clock_timestamp()
WHERE NOT EXISTS (
  SELECT 1 FROM sign_in_tries AS b WHERE b.kind = 'address' AND b.subject = @address AND b.blocked_until > clock_timestamp())
ON CONFLICT (kind, subject) DO UPDATE SET
  failures = CASE WHEN t.last_at < clock_timestamp() - make_interval(secs => @forget_seconds::float8) THEN 1 ELSE t.failures + 1 END,
  last_at = clock_timestamp(),
  blocked_until = clock_timestamp() + sign_in_wait(
    CASE WHEN t.last_at < clock_timestamp() - make_interval(secs => @forget_seconds::float8) THEN 1 ELSE t.failures + 1 END)
WHERE t.blocked_until <= clock_timestamp()
RETURNING t.failures;

-- name: CountAddressFailure :one
-- An address is counted once a try has failed, not before: an office behind one address signs in at the same minute. So
-- as many tries at once may go past the limit as passwords are hashed at once. A success takes nothing back: else an
-- account of one's own would clear the way to the next five guesses at another's.
INSERT INTO sign_in_tries AS t (kind, subject, failures, last_at, blocked_until)
VALUES ('address', @address, 1, clock_timestamp(), clock_timestamp())
ON CONFLICT (kind, subject) DO UPDATE SET
  failures = CASE WHEN t.last_at < clock_timestamp() - make_interval(secs => @forget_seconds::float8) THEN 1 ELSE t.failures + 1 END,
  last_at = clock_timestamp(),
  blocked_until = clock_timestamp() + sign_in_wait(
    CASE WHEN t.last_at < clock_timestamp() - make_interval(secs => @forget_seconds::float8) THEN 1 ELSE t.failures + 1 END)
RETURNING t.failures;

-- name: ForgetSignInName :exec
DELETE FROM sign_in_tries AS t WHERE t.kind = 'name' AND t.subject = @name;

-- name: PruneSessions :execrows
DELETE FROM console_sessions AS s WHERE s.id = ANY(ARRAY(
  SELECT y.id FROM console_sessions AS y
  WHERE y.used_at <= now() - make_interval(secs => @idle_seconds::float8)
     OR y.created_at <= now() - make_interval(secs => @total_seconds::float8)
  LIMIT @max_rows::int FOR UPDATE SKIP LOCKED));

-- name: PruneSignInTries :execrows
DELETE FROM sign_in_tries AS t WHERE t.ctid = ANY(ARRAY(
  SELECT y.ctid FROM sign_in_tries AS y WHERE y.last_at < now() - make_interval(secs => @forget_seconds::float8)
  ORDER BY y.last_at LIMIT @max_rows::int FOR UPDATE SKIP LOCKED));
