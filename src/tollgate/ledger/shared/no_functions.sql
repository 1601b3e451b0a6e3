-- Before functions.sql is run again: what a function takes or gives cannot be changed in place.
DO $$
DECLARE
    v_old regprocedure;
BEGIN
    FOR v_old IN SELECT oid FROM pg_proc WHERE pronamespace = 'tollgate'::regnamespace LOOP
        EXECUTE 'DROP FUNCTION ' || v_old;
    END LOOP;
END $$;
