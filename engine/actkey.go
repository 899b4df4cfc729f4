package engine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RepeatedError says that an act under this idempotency key was done before, by
// the same words; nothing was done now. Subject is the id of the job it acted on,
// or of the operation it made.
type RepeatedError struct {
	Key     string
	Subject ID
}

func (e *RepeatedError) Error() string {
	return fmt.Sprintf("idempotency key %q: done before, to %s", e.Key, e.Subject)
}

// once takes the key of an act, if it has one, before the act looks at anything.
// An act that is not done leaves no key. details are what makes two acts the same,
// beside their name.
func (c *Client) once(ctx context.Context, tx pgx.Tx, a Actor, action string, subject ID, details ...any) error {
	if a.Key == "" {
		return nil
	}
	if code := textFault(a.Key, 255); code != "" {
		return &ValidationError{[]FieldError{{"idempotency_key", code, "1 to 255 characters, no control characters"}}}
	}
	content, err := json.Marshal(append([]any{action, a.Reason, a.Version}, details...))
	if err != nil {
		return err
	}
	hash := sha256.Sum256(content)
	took, err := c.q.TakeActKey(ctx, tx, a.Key, hash[:], subject.String(), c.keyTTL.Seconds())
	if err != nil {
		return err
	}
	if took.Outcome == "in_flight" {
		return ErrKeyInFlight
	}
	var first ID
	if took.Outcome != "taken" {
		if err := first.UnmarshalText([]byte(took.Subject)); err != nil {
			return fmt.Errorf("idempotency key %q: %w", a.Key, err)
		}
	}
	switch took.Outcome {
	case "duplicate":
		return &RepeatedError{Key: a.Key, Subject: first}
	case "conflict":
		return &KeyReusedError{Key: a.Key, Holder: first, Act: true}
	}
	return nil
}
