package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestABatchShrinksWhenItIsLateAndGrowsBack(t *testing.T) {
	t.Parallel()
	late := fmt.Errorf("call: %w", context.DeadlineExceeded)
	canceled := &pgconn.PgError{Code: "57014"}
	b := &batchSize{most: 100}
	got, patience := []int32{b.size()}, []time.Duration{b.patience()}
	for _, err := range []error{nil, late, canceled, late, late, errors.New("refused"), &pgconn.PgError{Code: "40001"}, nil, nil, nil, nil, nil, nil, nil, nil} {
		b.after(err)
		got, patience = append(got, b.size()), append(patience, b.patience())
	}
	if want := []time.Duration{1, 1, 2, 4, 8, 8, 8, 8, 1, 1, 1, 1, 1, 1, 1, 1}; !slices.Equal(patience, want) {
		t.Errorf("patience %v, want %v", patience, want)
	}
	if want := []int32{100, 100, 25, 6, 1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 100, 100}; !slices.Equal(got, want) {
		t.Errorf("sizes %v, want %v", got, want)
	}
}
