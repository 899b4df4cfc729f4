package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playwright-community/playwright-go"
)

// What the browser tests need from npm, exactly. playwright-core is the driver of
// the playwright-go in go.mod; html-validate 9 is the newest that runs on Node 18.
const (
	npmPlaywright = "playwright-core@1.52.0"
	npmAxe        = "axe-core@4.14.1"
	npmValidate   = "html-validate@9.7.1"
)

// chromiums are the names of a Chromium that the driver can steer. The one that
// draws on no screen takes two thirds of the time.
var chromiums = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// browser is the one browser of the test process: tests have contexts of their own
// in it.
var browser = sync.OnceValues(startBrowser)

// stopBrowser ends the browser and its driver, if any test has used them.
var stopBrowser = func() {}

// tools is where the npm packages are. They are installed once per user, into a
// folder named after their versions.
var tools = sync.OnceValues(installTools)

func startBrowser() (playwright.Browser, error) {
	chromium, err := find("the browser tests drive a real browser: install Chromium (Debian: apt-get install chromium)", chromiums...)
	if err != nil {
		return nil, err
	}
	dir, err := tools()
	if err != nil {
		return nil, err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("PLAYWRIGHT_NODEJS_PATH", node); err != nil {
		return nil, err
	}
	pw, err := playwright.Run(&playwright.RunOptions{DriverDirectory: dir, SkipInstallBrowsers: true})
	if err != nil {
		return nil, fmt.Errorf("start the browser's driver: %w", err)
	}
	stopBrowser = func() { _ = pw.Stop() }
	b, err := pw.Chromium.Launch(playwright.BrowserTypeLaunchOptions{
		ExecutablePath: &chromium,
		Timeout:        playwright.Float(60_000),
		// Names are not looked up, so that nothing leaves this machine even if a page tries.
		Args: []string{"--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic",
			"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", chromium, err)
	}
	stopBrowser = func() { _ = b.Close(); _ = pw.Stop() }
	return b, nil
}

// find is the first of some programs that is installed.
func find(orElse string, names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s", orElse)
}

func installTools() (string, error) {
	packages := []string{npmPlaywright, npmAxe, npmValidate}
	if _, err := find("the browser tests need Node (Debian: apt-get install nodejs npm)", "node"); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the browser tests' tools: %w", err)
	}
	cache = filepath.Join(cache, "reliable-job-engine", "browser-tests")
	dir := filepath.Join(cache, strings.Join(packages, "+"))
	if _, err := os.Stat(filepath.Join(dir, "package", "cli.js")); err == nil {
		return dir, nil
	}
	npm, err := find("the browser tests install "+strings.Join(packages, ", ")+" on first use, which needs npm (Debian: apt-get install npm)", "npm")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	half, err := os.MkdirTemp(cache, "half-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, append([]string{"install", "--prefix", half, "--no-save", "--no-package-lock",
		"--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"}, packages...)...)
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the browser tests could not install %s with npm: %w\n%s", strings.Join(packages, ", "), err, out)
	}
	// Where playwright-go looks for its driver.
	if err := os.Symlink(filepath.Join("node_modules", "playwright-core"), filepath.Join(half, "package")); err != nil {
		return "", err
	}
	// Another test process may have been quicker: then its folder is as good.
	if err := os.Rename(half, dir); err != nil {
		if _, there := os.Stat(filepath.Join(dir, "package", "cli.js")); there != nil {
			return "", err
		}
	}
	return dir, nil
}

// needBrowser is the browser, or the end of the test with what is missing.
func needBrowser(t *testing.T) playwright.Browser {
	t.Helper()
	b, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
