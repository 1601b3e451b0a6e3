-- What must happen in one step, in the database: one call is one round of a gateway, and one transaction (rounds.py).
-- Amounts travel as text: a JSON number could be read as a float on the way.

-- Store rows of usage and take their costs from the balances, each request id once.
CREATE FUNCTION tollgate.charge(p_instance text, p_rows jsonb) RETURNS void LANGUAGE sql AS $$
    WITH new AS (
        INSERT INTO tollgate.usage
        SELECT made.* FROM jsonb_array_elements(p_rows) AS given,
            LATERAL jsonb_populate_record(NULL::tollgate.usage, given || jsonb_build_object('instance', p_instance)) AS made
        ON CONFLICT (request_id) DO NOTHING
        RETURNING account_id, key_id, cost, time
    ), by_account AS (
        INSERT INTO tollgate.balances AS b (account_id, spent)
        SELECT account_id, sum(cost) FROM new GROUP BY account_id
        ON CONFLICT (account_id) DO UPDATE SET spent = b.spent + excluded.spent
    ), by_key AS (
        INSERT INTO tollgate.key_sums AS k (key_id, spent, last_used)
        SELECT key_id, sum(cost), max(time) FROM new GROUP BY key_id
        ON CONFLICT (key_id) DO UPDATE SET spent = k.spent + excluded.spent, last_used = greatest(k.last_used, excluded.last_used)
    )
    INSERT INTO tollgate.key_days AS d (key_id, day, spent)
    SELECT key_id, (time AT TIME ZONE 'UTC')::date, sum(cost) FROM new GROUP BY 1, 2
    ON CONFLICT (key_id, day) DO UPDATE SET spent = d.spent + excluded.spent
$$;

-- From now on the requests of this gateway hold so much: [{"account", "key", "amount"}], whole amounts, so saying it twice changes nothing.
CREATE FUNCTION tollgate.set_held(p_instance text, p_held jsonb) RETURNS void LANGUAGE sql AS $$
    WITH given AS (
        SELECT account, key, amount FROM jsonb_to_recordset(p_held) AS x(account text, key text, amount numeric)
    ), change AS (
        SELECT account, key, given.amount - coalesce(h.amount, 0) AS more
        FROM given LEFT JOIN tollgate.holds h ON h.instance = p_instance AND h.key_id = given.key
    ), gone AS (
        DELETE FROM tollgate.holds h USING given WHERE h.instance = p_instance AND h.key_id = given.key AND given.amount = 0
    ), kept AS (
        INSERT INTO tollgate.holds (instance, key_id, account_id, amount)
        SELECT p_instance, key, account, amount FROM given WHERE amount <> 0
        ON CONFLICT (instance, key_id) DO UPDATE SET amount = excluded.amount
    ), by_account AS (
        INSERT INTO tollgate.balances AS b (account_id, held)
        SELECT account, sum(more) FROM change GROUP BY account
        ON CONFLICT (account_id) DO UPDATE SET held = b.held + excluded.held
    )
    INSERT INTO tollgate.key_sums AS k (key_id, held)
    SELECT key, sum(more) FROM change GROUP BY key
    ON CONFLICT (key_id) DO UPDATE SET held = k.held + excluded.held
$$;

-- Give back all that a gateway held: it is gone, or begins anew.
CREATE FUNCTION tollgate.release(p_instance text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_held jsonb;
BEGIN
    PERFORM 1 FROM tollgate.balances WHERE account_id IN (SELECT account_id FROM tollgate.holds WHERE instance = p_instance)
        ORDER BY account_id FOR UPDATE;
    SELECT jsonb_agg(jsonb_build_object('account', account_id, 'key', key_id, 'amount', '0')) INTO v_held
        FROM tollgate.holds WHERE instance = p_instance;
    IF v_held IS NOT NULL THEN
        PERFORM tollgate.set_held(p_instance, v_held);
    END IF;
END $$;

-- The session that has this lock is the gateway of that name.
CREATE FUNCTION tollgate.lock_of(p_instance text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('tollgate ' || p_instance, 0)
$$;

-- Give back what a gateway held whose session is over, one at a time, since each locks its accounts in their order; gives its name.
CREATE FUNCTION tollgate.release_gone(p_instance text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_other text;
BEGIN
    FOR v_other IN SELECT DISTINCT instance FROM tollgate.holds WHERE instance <> p_instance ORDER BY 1 LOOP
        IF pg_try_advisory_xact_lock(tollgate.lock_of(v_other)) THEN
            PERFORM tollgate.release(v_other);
            RETURN v_other;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Reserve what is asked for, for requests of one key in the order in which they asked (the rule of `memory.Memory.hold`); gives an
-- amount or a reason for each. `since`: first day of the cap's window, null for all days; `until`:
-- the first day after it, which only programs before version 8 do not send.
CREATE FUNCTION tollgate.hold(p_instance text, p_asks jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_account text := p_asks->0->>'account';
    v_key text := p_asks->0->>'key';
    v_since date := (p_asks->0->>'since')::date;
    v_until date := coalesce((p_asks->0->>'until')::date, 'infinity');
    v_free numeric;
    v_before numeric;
    v_used numeric := 0;
    v_running numeric := 0;
    v_left numeric;
    v_held numeric := 0;
    v_ask jsonb;
    v_amount numeric;
    v_said jsonb := '[]';
BEGIN
    SELECT granted - spent - held, held INTO v_free, v_before FROM tollgate.balances WHERE account_id = v_account;
    IF p_asks @? '$[*].cap ? (@ != null)' THEN
        IF v_since IS NULL THEN
            SELECT coalesce(sum(spent), 0) INTO v_used FROM tollgate.key_sums WHERE key_id = v_key;
        ELSE
            SELECT coalesce(sum(spent), 0) INTO v_used FROM tollgate.key_days WHERE key_id = v_key AND day >= v_since AND day < v_until;
        END IF;
        SELECT coalesce(sum(held), 0) INTO v_running FROM tollgate.key_sums WHERE key_id = v_key;
    END IF;
    FOR v_ask IN SELECT jsonb_array_elements(p_asks) LOOP
        v_left := (v_ask->>'cap')::numeric - v_used - v_running - v_held;
        v_amount := greatest(0, least((v_ask->>'amount')::numeric, v_left));
        IF v_free IS NULL OR v_free - v_held < (v_ask->>'minimum')::numeric THEN
            v_said := v_said || '[{"refused": "credits"}]';
        ELSIF v_left <= 0 THEN
            v_said := v_said || '[{"refused": "cap"}]';
        ELSIF v_left < (v_ask->>'amount')::numeric AND v_running + v_held > 0 OR v_free - v_held < v_amount AND v_before + v_held > 0 THEN
            v_said := v_said || '[{"refused": "credits"}]';
        ELSE
            v_amount := least(v_amount, v_free - v_held);
            v_held := v_held + v_amount;
            v_said := v_said || jsonb_build_array(jsonb_build_object('amount', v_amount::text));
        END IF;
    END LOOP;
    IF v_held > 0 THEN
        PERFORM tollgate.set_held(p_instance, jsonb_build_array(jsonb_build_object('account', v_account, 'key', v_key, 'amount', (
            v_held + coalesce((SELECT amount FROM tollgate.holds WHERE instance = p_instance AND key_id = v_key), 0))::text)));
    END IF;
    RETURN v_said;
END $$;

-- A bucket of a rate limit with what time has brought (the rule of `limits.RateLimits`); gives its level. A clock that was
-- set back by more than a minute goes on from there, or nothing would come until it caught up; calls may come out of order by less.
CREATE FUNCTION tollgate.refill(p_key text, p_kind text, p_allowed double precision, p_now timestamptz) RETURNS double precision LANGUAGE sql AS $$
    INSERT INTO tollgate.buckets AS b (key_id, kind, allowed, level, stamp) VALUES (p_key, p_kind, p_allowed, p_allowed, p_now)
    ON CONFLICT (key_id, kind) DO UPDATE SET
        level = least(excluded.allowed,
            CASE WHEN b.allowed = excluded.allowed THEN b.level WHEN b.allowed = 0 THEN excluded.allowed ELSE b.level * excluded.allowed / b.allowed END
            + greatest(0, extract(epoch FROM excluded.stamp - b.stamp)) * excluded.allowed / 60),
        allowed = excluded.allowed, stamp = CASE
            WHEN excluded.stamp < b.stamp - interval '1 minute' THEN excluded.stamp ELSE greatest(b.stamp, excluded.stamp) END
    RETURNING level
$$;

-- Count one request against a key's limits, or say for how many seconds it has to wait, and for which limit.
CREATE FUNCTION tollgate.admit(p_ask jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_key text := p_ask->>'key';
    v_rpm double precision := (p_ask->>'rpm')::double precision;
    v_tpm double precision := (p_ask->>'tpm')::double precision;
    v_tokens double precision := (p_ask->>'tokens')::double precision;
    v_now timestamptz := clock_timestamp();
    v_requests double precision;
    v_left double precision;
    v_needed double precision;
BEGIN
    IF v_rpm IS NOT NULL THEN
        v_requests := tollgate.refill(v_key, 'requests', v_rpm, v_now);
        IF v_rpm = 0 OR v_requests < 1 THEN
            RETURN jsonb_build_object('refused', 'requests', 'wait', CASE WHEN v_rpm = 0 THEN 60 ELSE (1 - v_requests) * 60 / v_rpm END);
        END IF;
    END IF;
    IF v_tpm IS NOT NULL THEN
        v_left := tollgate.refill(v_key, 'tokens', v_tpm, v_now);
        v_needed := least(greatest(v_tokens, 1), v_tpm);
        IF v_tpm = 0 OR v_left < v_needed THEN
            RETURN jsonb_build_object('refused', 'tokens', 'wait', CASE WHEN v_tpm = 0 THEN 60 ELSE (v_needed - v_left) * 60 / v_tpm END);
        END IF;
    END IF;
    UPDATE tollgate.buckets SET level = level - 1 WHERE key_id = v_key AND kind = 'requests' AND v_rpm IS NOT NULL;
    UPDATE tollgate.buckets SET level = level - v_tokens WHERE key_id = v_key AND kind = 'tokens' AND v_tpm IS NOT NULL;
    RETURN jsonb_build_object('requests', v_requests - 1, 'tokens', v_left - v_tokens);
END $$;

-- Correct the tokens that `admit` counted: so many more (or fewer) were used.
CREATE FUNCTION tollgate.correct(p_used jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tollgate.refill(p_used->>'key', 'tokens', (p_used->>'tpm')::double precision, clock_timestamp());
    UPDATE tollgate.buckets SET level = least(allowed, level - (p_used->>'more')::double precision)
        WHERE key_id = p_used->>'key' AND kind = 'tokens';
END $$;

-- Make a job, or change it if its status is still one of `expected`; its row is charged with it. Whether this call did it: a round that
-- is repeated, because nobody heard how it ended, finds its own change.
CREATE FUNCTION tollgate.put_job(p_instance text, p_job jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_won boolean;
BEGIN
    IF p_job->'expected' = 'null' THEN
        INSERT INTO tollgate.generations (id, account_id, status, model, created_at, cost, document, answer)
        VALUES (p_job->>'id', p_job->>'account_id', p_job->>'status', p_job->>'model', (p_job->>'created_at')::timestamptz,
            (p_job->>'cost')::numeric, p_job->>'document', p_job->>'answer')
        ON CONFLICT (id) DO NOTHING;
    ELSE
        UPDATE tollgate.generations SET status = p_job->>'status', cost = (p_job->>'cost')::numeric,
            document = p_job->>'document', answer = p_job->>'answer'
        WHERE id = p_job->>'id' AND status IN (SELECT jsonb_array_elements_text(p_job->'expected'));
    END IF;
    v_won := FOUND OR EXISTS (
        SELECT 1 FROM tollgate.generations WHERE id = p_job->>'id' AND status = p_job->>'status' AND document = p_job->>'document');
    IF v_won AND p_job->'row' <> 'null' THEN
        PERFORM tollgate.charge(p_instance, jsonb_build_array(p_job->'row'));
    END IF;
    RETURN v_won;
END $$;

-- One round: everything that gathered at a gateway since its last, in the order in which it can be afforded.
CREATE FUNCTION tollgate.round(p_asked jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_instance text := p_asked->>'instance';
    v_one jsonb;
    v_won jsonb := '[]';
    v_admitted jsonb := '[]';
    v_held jsonb := '[]';
    v_balances jsonb;
BEGIN
    IF p_asked->'rows' = '[]' AND p_asked->'jobs' = '[]' THEN
        PERFORM set_config('synchronous_commit', 'off', true);  -- what a gateway holds is not worth a sync: it says it again after a crash
    END IF;
    PERFORM 1 FROM tollgate.balances WHERE account_id IN (SELECT jsonb_array_elements_text(p_asked->'accounts')) ORDER BY account_id FOR UPDATE;
    FOR v_one IN SELECT jsonb_array_elements(p_asked->'jobs') LOOP
        v_won := v_won || to_jsonb(tollgate.put_job(v_instance, v_one));
    END LOOP;
    PERFORM tollgate.charge(v_instance, p_asked->'rows');
    PERFORM tollgate.set_held(v_instance, p_asked->'held');
    FOR v_one IN SELECT jsonb_array_elements(p_asked->'used') LOOP
        PERFORM tollgate.correct(v_one);
    END LOOP;
    FOR v_one IN SELECT jsonb_array_elements(p_asked->'admits') LOOP
        v_admitted := v_admitted || jsonb_build_array(tollgate.admit(v_one));
    END LOOP;
    FOR v_one IN SELECT jsonb_array_elements(p_asked->'holds') LOOP
        v_held := v_held || jsonb_build_array(tollgate.hold(v_instance, v_one));
    END LOOP;
    SELECT jsonb_object_agg(account_id, jsonb_build_array(granted::text, spent::text)) INTO v_balances
        FROM tollgate.balances WHERE account_id IN (SELECT jsonb_array_elements_text(p_asked->'accounts'));
    RETURN jsonb_build_object('won', v_won, 'admitted', v_admitted, 'held', v_held, 'balances', coalesce(v_balances, '{}'));
END $$;
