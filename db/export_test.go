package db

// For tests, which bring migrations of their own.
var (
	MigrateFiles     = migrate
	DownFiles        = down
	StatusFiles      = status
	CheckSchemaFiles = checkSchema
	LibpqAddress     = libpqAddress
)

const MigrationLock = migrationLock
