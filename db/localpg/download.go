package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// downloads are the versions to fetch, by major; downloadVersion is for new data.
var downloads = map[int]embeddedpostgres.PostgresVersion{
	15: embeddedpostgres.V15, 16: embeddedpostgres.V16, 17: embeddedpostgres.V17, 18: embeddedpostgres.V18,
}

const (
	downloadVersion = embeddedpostgres.V17
	downloadTimeout = 5 * time.Minute
)

// download fetches Postgres with the embedded-postgres library and unpacks it below
// the data folder, once.
//
// The library has no call for that alone, and its start can't run as root, choose
// a durable setup or end with its parent. So it is told to start on data that no
// server can start on: it downloads, compares checksums, unpacks, and gives up.
// What counts is whether the unpacked binaries run.
func download(ctx context.Context, o Options, p place, version embeddedpostgres.PostgresVersion) (binaries, error) {
	if err := os.MkdirAll(p.fetched(), 0o755); err != nil {
		return binaries{}, folderError(p.fetched(), err)
	}
	work, err := os.MkdirTemp(p.fetched(), "fetch-")
	if err != nil {
		return binaries{}, folderError(p.fetched(), err)
	}
	defer os.RemoveAll(work)
	config, err := fetchConfig(o, p, work, version)
	if err != nil {
		return binaries{}, folderError(work, err)
	}
	o.Log.Info("no postgres on this machine, downloading it", "version", string(version))
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	if err := fetch(ctx, config); err != nil {
		return binaries{}, downloadError(o, version, err)
	}
	unpacked := filepath.Join(work, "unpacked")
	if err := p.as.own(p.fetched()); err != nil {
		return binaries{}, err
	}
	if _, err := inspect(ctx, filepath.Join(unpacked, "bin"), p.as); err != nil {
		return binaries{}, downloadError(o, version, err)
	}
	final := filepath.Join(p.fetched(), string(version))
	if err := os.RemoveAll(final); err != nil {
		return binaries{}, folderError(final, err)
	}
	if err := os.Rename(unpacked, final); err != nil {
		return binaries{}, folderError(final, err)
	}
	return inspect(ctx, filepath.Join(final, "bin"), p.as)
}

// fetchConfig makes a data folder that looks initialised, so that the library does
// not run initdb, and is empty but for that.
func fetchConfig(o Options, p place, work string, version embeddedpostgres.PostgresVersion) (embeddedpostgres.Config, error) {
	data := filepath.Join(work, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return embeddedpostgres.Config{}, err
	}
	major, _, _ := strings.Cut(string(version), ".")
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major+"\n"), 0o600); err != nil {
		return embeddedpostgres.Config{}, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return embeddedpostgres.Config{}, err
	}
	defer listener.Close()
	port, err := strconv.ParseUint(listener.Addr().String()[len("127.0.0.1:"):], 10, 16)
	config := embeddedpostgres.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		CachePath(filepath.Join(p.fetched(), "archives")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(filepath.Join(work, "unpacked")).
		DataPath(data).
		StartTimeout(time.Second).
		Logger(nil)
	if o.MirrorURL != "" {
		config = config.BinaryRepositoryURL(strings.TrimSuffix(o.MirrorURL, "/"))
	}
	return config, err
}

// fetch waits for the library no longer than ctx; it takes none itself, and a
// download given up on ends with the process.
func fetch(ctx context.Context, config embeddedpostgres.Config) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // the library's answer to a full disk
				done <- fmt.Errorf("unpack: %v", p)
			}
		}()
		err := embeddedpostgres.NewDatabase(config).Start()
		if err != nil && strings.HasPrefix(err.Error(), "could not start postgres") {
			err = nil // as intended, see download
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func downloadError(o Options, version embeddedpostgres.PostgresVersion, err error) error {
	reason := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		reason = "it took too long"
	}
	return fmt.Errorf("%w on this machine, and downloading %s did not work: %s; install PostgreSQL %d or newer, put its bin folder on PATH, or set DATABASE_URL",
		ErrNoBinaries, version, reason, o.MinMajor)
}
