package storeclient

import java.time.Instant

/** Opens and closes the vaults without a passphrase of their own. Passphrases are never statement text. */
public open class Seal internal constructor(
    private val client: Client,
    private val ns: String?,
    private val db: String?,
    private val vault: String?,
) {
    private suspend fun ask(op: String, vararg fields: Any?): Row =
        client.change(Request(Kind.VAULT, Body("op", op, "ns", ns, "db", db, "vault", vault, *fields)))

    /** Opens the vaults and returns the time at which they close. Use does not extend it. */
    public suspend fun unseal(passphrase: String): Instant = ask("unseal", "passphrase", passphrase).needed("until")

    /** Closes the vaults. */
    public suspend fun seal() {
        ask("seal")
    }

    /** Changes the passphrase and returns the number of keys wrapped again. Without [old] it sets the first. */
    public suspend fun changePassphrase(old: String?, new: String): Long = change(old, new, rekey = false)

    /** Changes the passphrase after a leak: all keys are replaced and every value is encrypted again. */
    public suspend fun rekey(old: String, new: String): Long = change(old, new, rekey = true)

    private suspend fun change(old: String?, new: String, rekey: Boolean): Long =
        ask("passphrase", "old", old, "new", new, "rekey", rekey).needed("rewrapped")
}

/**
 * The value of a record of a vault. It is not shown where the object is printed.
 *
 * @property id id of the record
 * @property version version of the value
 * @property at time of that version
 * @property value value of the record
 */
public class Revealed internal constructor(public val id: String, public val version: Long, public val at: Instant, public val value: Any?) {
    override fun toString(): String = "Revealed(id=$id, version=$version, at=$at)"
}

/**
 * Answer to a write of a vault.
 *
 * @property written false if the condition did not hold
 * @property version version of the record
 */
public data class Written(val written: Boolean, val version: Long)

/**
 * A handle on a vault. Its seal is for a vault with a passphrase of its own.
 *
 * @property name name of the vault
 */
public class Vault internal constructor(private val database: Database, public val name: String) :
    Seal(database.client, database.ns, database.db, name) {
    private val quoted = quoteName(name)

    private suspend fun row(text: String, params: Row, reason: String? = null): Row =
        infoOf(database.script(text, params, ScriptOptions(reason = reason)).value)

    /**
     * Writes the next version of a record.
     *
     * @param ifAbsent write only if the record does not exist
     * @param expectVersion write only if the record has this version; 0: it does not exist
     * @param reason reason in the vault's audit trail
     */
    public suspend fun write(
        id: String,
        value: Any?,
        ifAbsent: Boolean = false,
        expectVersion: Long? = null,
        reason: String? = null,
    ): Written {
        val clause =
            when {
                expectVersion != null -> " EXPECT VERSION \$expect"
                ifAbsent -> " IF ABSENT"
                else -> ""
            }
        val params = mapOf("id" to id, "value" to value) + if (expectVersion == null) emptyMap() else mapOf("expect" to expectVersion)
        val found = row("WRITE \$id IN VAULT $quoted VALUE \$value$clause", params, reason)
        return Written(found.needed("written"), found.needed("version"))
    }

    /**
     * Returns the value of a record. The access is audited before it is answered.
     *
     * @param version a version in the place of the newest
     * @param reason reason in the vault's audit trail
     */
    public suspend fun reveal(id: String, version: Long? = null, reason: String? = null): Revealed {
        val text = "REVEAL \$id FROM VAULT $quoted${if (version == null) "" else " VERSION \$version"}"
        val found = row(text, mapOf("id" to id) + if (version == null) emptyMap() else mapOf("version" to version), reason)
        return Revealed(found.needed("id"), found.needed("version"), found.needed("at"), found["value"])
    }

    /** Returns ids with a prefix behind another id, in the order of their bytes. */
    public suspend fun list(prefix: String = "", after: String = "", limit: Int = LIST_MOST): List<String> {
        val params = mapOf("prefix" to prefix, "after" to after, "limit" to limit)
        return row("LIST FROM VAULT $quoted PREFIX \$prefix AFTER \$after LIMIT \$limit", params).strings("ids")
    }

    /** Erases a record with all of its versions, and returns true if it existed. */
    public suspend fun erase(id: String, reason: String? = null): Boolean =
        row("ERASE \$id FROM VAULT $quoted", mapOf("id" to id), reason).needed("erased")

    /** Returns the answer of INFO FOR VAULT. */
    public suspend fun info(): Row = row("INFO FOR VAULT $quoted", emptyMap())

    /** Returns entries of the audit trail, newest first, before a sequence if one is given. */
    public suspend fun audit(limit: Int, before: Long? = null): List<Row> {
        val text = "INFO FOR AUDIT OF VAULT $quoted${if (before == null) "" else " BEFORE \$before"} LIMIT \$limit"
        val params = mapOf("limit" to limit) + if (before == null) emptyMap() else mapOf("before" to before)
        val found = database.script(text, params, ScriptOptions()).value as? List<*> ?: throw broken("the node sent no audit trail")
        return found.map(::infoOf)
    }

    override fun toString(): String = "vault $name of $database"
}

private const val LIST_MOST = 1000
