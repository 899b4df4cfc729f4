-- name: GetSigningSecret :one
SELECT s.secret FROM signing_secrets AS s WHERE s.name = @name::text;
