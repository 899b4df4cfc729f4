package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db"
)

func TestEveryTestGetsAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	first := New(t)
	t.Logf("first New took %v", time.Since(begun))
	begun = time.Now()
	second := New(t)
	t.Logf("second New took %v", time.Since(begun))
	if err := db.CheckSchema(ctx, first); err != nil {
		t.Errorf("CheckSchema: %v", err)
	}
	if _, err := first.Exec(ctx, "CREATE TABLE mine (id int)"); err != nil {
		t.Fatalf("create a table: %v", err)
	}
	var there bool
	if err := second.QueryRow(ctx, "SELECT to_regclass('mine') IS NOT NULL").Scan(&there); err != nil {
		t.Fatal(err)
	}
	if there {
		t.Error("the second test's database has the first one's table")
	}
}
