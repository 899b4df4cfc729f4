package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// Reveal returns a job's payload for somebody who may see what is masked elsewhere.
// That they did is in the audit trail, or nothing is returned. The job stays as it
// is. Errors: [ErrJobNotFound]; a *[StateError] with Changed set.
func (c *Client) Reveal(ctx context.Context, id ID, a Actor) (json.RawMessage, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var payload json.RawMessage
	err := c.commit(ctx, func(tx pgx.Tx) error {
		row, err := c.q.GetPayload(ctx, tx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrJobNotFound
		}
		if err != nil {
			return err
		}
		if a.Version != 0 && a.Version != int(row.Version) {
			return errStale
		}
		payload = json.RawMessage(row.Payload)
		return c.record(ctx, tx, "reveal", id, change{}, a)
	})
	if errors.Is(err, errStale) {
		return nil, c.stale(ctx, "reveal", id)
	}
	if err != nil {
		return nil, fmt.Errorf("reveal payload of job %s: %w", id, err)
	}
	c.log.LogAttrs(ctx, slog.LevelInfo, LogOperatorAction, slog.String("actor", a.Name), slog.String("reason", a.Reason),
		slog.String("action", "reveal"), slog.String("target", id.String()))
	return payload, nil
}
