-- The five transactions as procedures. Each is called outside of a transaction and is one. Functions
-- are of plpgsql too: those of sql are parsed and planned anew in each transaction.

CREATE FUNCTION tpcc_last_name(number int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    part CONSTANT text[] := ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY',
        'ATION', 'EING'];
BEGIN
    RETURN part[number / 100 + 1] || part[number / 10 % 10 + 1] || part[number % 10 + 1];
END $$;

-- The customer in the middle of those of a name, clause 2.5.2.2.
CREATE FUNCTION tpcc_customer_by_name(warehouse_id int, district_id int, last_name text)
RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE
    named int;
BEGIN
    SELECT c_id INTO named FROM (
        SELECT c_id, row_number() OVER (ORDER BY c_first) AS place, count(*) OVER () AS count
        FROM customer
        WHERE c_w_id = warehouse_id AND c_d_id = district_id AND c_last = last_name) AS named_so
    WHERE place = (count + 1) / 2;
    RETURN named;
END $$;

CREATE PROCEDURE tpcc_new_order(
    warehouse_id int, district_id int, customer_id int, line_count int,
    items int[], supplies int[], quantities int[], INOUT total numeric)
LANGUAGE plpgsql AS $$
DECLARE
    discount numeric; warehouse_tax numeric; district_tax numeric; price numeric;
    order_id int; line record; line_number int := 0; amounts numeric := 0;
    info text; is_item_missing boolean := false;
BEGIN
    SELECT c_discount, w_tax INTO STRICT discount, warehouse_tax FROM customer, warehouse
    WHERE w_id = warehouse_id AND c_w_id = w_id AND c_d_id = district_id AND c_id = customer_id;
    UPDATE district SET d_next_o_id = d_next_o_id + 1
    WHERE d_w_id = warehouse_id AND d_id = district_id
    RETURNING d_next_o_id - 1, d_tax INTO STRICT order_id, district_tax;
    INSERT INTO orders VALUES (order_id, district_id, warehouse_id, customer_id, now(), NULL,
        line_count, (warehouse_id = ALL (supplies[1:line_count]))::int);
    INSERT INTO new_order VALUES (order_id, district_id, warehouse_id);
    FOR line IN
        SELECT item, supply, quantity
        FROM unnest(items[1:line_count], supplies[1:line_count], quantities[1:line_count])
            AS lines (item, supply, quantity)
        ORDER BY item, supply
    LOOP
        line_number := line_number + 1;
        SELECT i_price INTO price FROM item WHERE i_id = line.item;
        IF NOT FOUND THEN
            is_item_missing := true;
            EXIT;
        END IF;
        UPDATE stock SET
            s_quantity = s_quantity - line.quantity
                + CASE WHEN s_quantity >= line.quantity + 10 THEN 0 ELSE 91 END,
            s_ytd = s_ytd + line.quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (line.supply <> warehouse_id)::int
        WHERE s_w_id = line.supply AND s_i_id = line.item
        RETURNING (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05,
            s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10])[district_id] INTO STRICT info;
        INSERT INTO order_line VALUES (order_id, district_id, warehouse_id, line_number, line.item,
            line.supply, NULL, line.quantity, line.quantity * price, info);
        amounts := amounts + line.quantity * price;
    END LOOP;
    IF is_item_missing THEN
        ROLLBACK;
        total := NULL;
        RETURN;
    END IF;
    total := amounts * (1 - discount) * (1 + warehouse_tax + district_tax);
END $$;

CREATE PROCEDURE tpcc_payment(
    warehouse_id int, district_id int, customer_warehouse_id int, customer_district_id int,
    customer_id int, last_name text, amount numeric, INOUT balance numeric)
LANGUAGE plpgsql AS $$
DECLARE
    warehouse_name text; district_name text; paying_id int;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = warehouse_id
    RETURNING w_name INTO STRICT warehouse_name;
    UPDATE district SET d_ytd = d_ytd + amount
    WHERE d_w_id = warehouse_id AND d_id = district_id
    RETURNING d_name INTO STRICT district_name;
    paying_id := coalesce(customer_id,
        tpcc_customer_by_name(customer_warehouse_id, customer_district_id, last_name));
    UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC'
            THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, district_id, warehouse_id, amount,
                c_data), 500)
            ELSE c_data END
    WHERE c_w_id = customer_warehouse_id AND c_d_id = customer_district_id AND c_id = paying_id
    RETURNING c_balance INTO STRICT balance;
    INSERT INTO history VALUES (paying_id, customer_district_id, customer_warehouse_id,
        district_id, warehouse_id, now(), amount, warehouse_name || '    ' || district_name);
END $$;

CREATE PROCEDURE tpcc_order_status(
    warehouse_id int, district_id int, customer_id int, last_name text, INOUT line_count int)
LANGUAGE plpgsql AS $$
DECLARE
    asking_id int; customer_row record; order_row record; line record;
BEGIN
    asking_id := coalesce(customer_id,
        tpcc_customer_by_name(warehouse_id, district_id, last_name));
    SELECT c_balance, c_first, c_middle, c_last INTO STRICT customer_row FROM customer
    WHERE c_w_id = warehouse_id AND c_d_id = district_id AND c_id = asking_id;
    SELECT o_id, o_entry_d, o_carrier_id INTO STRICT order_row FROM orders
    WHERE o_w_id = warehouse_id AND o_d_id = district_id AND o_c_id = asking_id
    ORDER BY o_id DESC LIMIT 1;
    line_count := 0;
    FOR line IN
        SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
        WHERE ol_w_id = warehouse_id AND ol_d_id = district_id AND ol_o_id = order_row.o_id
    LOOP
        line_count := line_count + 1;
    END LOOP;
END $$;

-- The oldest new order of each district. Where another delivery took it meanwhile, the next one.
CREATE PROCEDURE tpcc_delivery(warehouse_id int, carrier_id int, INOUT delivered_count int)
LANGUAGE plpgsql AS $$
DECLARE
    order_id int; ordering_id int; amounts numeric;
BEGIN
    delivered_count := 0;
    FOR district_id IN 1..10 LOOP
        FOR attempt IN 1..10 LOOP
            DELETE FROM new_order WHERE no_w_id = warehouse_id AND no_d_id = district_id
                AND no_o_id = (SELECT min(no_o_id) FROM new_order
                    WHERE no_w_id = warehouse_id AND no_d_id = district_id)
            RETURNING no_o_id INTO order_id;
            EXIT WHEN FOUND OR NOT EXISTS (SELECT FROM new_order
                WHERE no_w_id = warehouse_id AND no_d_id = district_id);
        END LOOP;
        CONTINUE WHEN order_id IS NULL;
        UPDATE orders SET o_carrier_id = carrier_id
        WHERE o_w_id = warehouse_id AND o_d_id = district_id AND o_id = order_id
        RETURNING o_c_id INTO STRICT ordering_id;
        WITH lines AS (
            UPDATE order_line SET ol_delivery_d = now()
            WHERE ol_w_id = warehouse_id AND ol_d_id = district_id AND ol_o_id = order_id
            RETURNING ol_amount)
        SELECT sum(ol_amount) INTO STRICT amounts FROM lines;
        UPDATE customer SET c_balance = c_balance + amounts, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = warehouse_id AND c_d_id = district_id AND c_id = ordering_id;
        delivered_count := delivered_count + 1;
    END LOOP;
END $$;

CREATE PROCEDURE tpcc_stock_level(
    warehouse_id int, district_id int, threshold int, INOUT low_count int)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT count(DISTINCT s_i_id) INTO low_count FROM district, order_line, stock
    WHERE d_w_id = warehouse_id AND d_id = district_id
        AND ol_w_id = d_w_id AND ol_d_id = d_id
        AND ol_o_id >= d_next_o_id - 20 AND ol_o_id < d_next_o_id
        AND s_w_id = ol_w_id AND s_i_id = ol_i_id AND s_quantity < threshold;
END $$;
