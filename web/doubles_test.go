package web

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/web/api"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

// nilReader fills a field of a Config that is refused before anything is read.
type nilReader struct{ api.Reader }

func newMetrics() *ops.Metrics { return ops.NewMetrics(ops.Build{}) }

func newPool(t testing.TB) *pgxpool.Pool { return dbtest.New(t) }
