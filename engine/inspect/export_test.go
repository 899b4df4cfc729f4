package inspect

import (
	"context"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// ExplainIn is Explain inside a transaction that is the caller's.
func (r *Reader) ExplainIn(ctx context.Context, tx dbsqlc.DBTX, id engine.ID) (Explanation, error) {
	return r.explain(ctx, tx, id, time.Time{})
}
