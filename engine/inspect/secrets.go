package inspect

import (
	"context"
	"fmt"
)

// CursorSecret is what places in lists are signed with, the same for every server.
// It must be in no log and no answer.
func (r *Reader) CursorSecret(ctx context.Context) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	secret, err := r.q.GetSigningSecret(ctx, r.pool, "cursor")
	if err != nil {
		return nil, fmt.Errorf("read the secret of cursors: %w", err)
	}
	return secret, nil
}
