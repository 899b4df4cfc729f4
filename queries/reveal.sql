-- name: GetPayload :one
-- A payload whole, for who has said why.
SELECT j.payload::text AS payload, j.version FROM jobs AS j WHERE j.id = @id;
