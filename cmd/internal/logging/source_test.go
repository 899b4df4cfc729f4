package logging

import (
	"log/slog"
	"testing"
)

func TestSourceIsShortWhereverItWasBuilt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ function, file, want string }{
		{modulePath + "engine.(*Engine).claimOnce", "/home/someone/src/engine/claim.go", "engine/claim.go:87"},
		{modulePath + "engine.(*Engine).claimOnce.func1", modulePath + "engine/claim.go", "engine/claim.go:87"},
		{modulePath + "engine/inspect.Jobs", "/b/engine/inspect/jobs.go", "engine/inspect/jobs.go:87"},
		{modulePath + "engine_test.TestX", "/b/engine/x_test.go", "engine/x_test.go:87"},
		{"github.com/labstack/echo/v4.(*Echo).Start", "/b/echo@v4/echo.go", "github.com/labstack/echo/v4/echo.go:87"},
		{"time.Sleep", "/go/src/time/sleep.go", "time/sleep.go:87"},
		{"main.main", "/b/cmd/server/main.go", "cmd/internal/logging.test/main.go:87"}, // the program running here
	} {
		if got := short(&slog.Source{Function: tt.function, File: tt.file, Line: 87}); got != tt.want {
			t.Errorf("short(%s) = %s, want %s", tt.function, got, tt.want)
		}
	}
}
