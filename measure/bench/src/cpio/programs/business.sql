-- Questions to a business's sales. Written for this suite; they stand for those of a report on
-- tariffs or of an analyst, and are nobody's benchmark.
.mode list
.separator |
-- 1. What each region earned in each month.
SELECT 'month', region, day / 30 AS month, count(*), sum(cents * quantity)
FROM sale JOIN store ON sale.store = store.id
GROUP BY region, month ORDER BY region, month;
-- 2. The ten products of each category that earned most.
SELECT 'best', category, product, earned FROM (
  SELECT category, product, earned,
    row_number() OVER (PARTITION BY category ORDER BY earned DESC, product) AS place
  FROM (
    SELECT category, product, sum(cents * quantity) AS earned
    FROM sale JOIN product ON sale.product = product.id GROUP BY category, product))
WHERE place <= 10 ORDER BY category, place;
-- 3. Customers who came again within a week, by how often they came.
SELECT 'again', visits, count(*), sum(soon) FROM (
  SELECT customer, count(*) AS visits, sum(day - before <= 7) AS soon FROM (
    SELECT customer, day, lag(day) OVER (PARTITION BY customer ORDER BY day) AS before FROM sale)
  GROUP BY customer)
GROUP BY visits ORDER BY visits;
-- 4. Stores whose week earned over a fifth more than the four weeks before it.
SELECT 'rise', store, week FROM (
  SELECT store, week, earned, avg(earned) OVER (
    PARTITION BY store ORDER BY week ROWS BETWEEN 4 PRECEDING AND 1 PRECEDING) AS usual
  FROM (
    SELECT store, day / 7 AS week, sum(cents * quantity) AS earned
    FROM sale GROUP BY store, week))
WHERE earned > 1.2 * usual ORDER BY store, week;
-- 5. How many different customers each category has, and what a sale of it is worth.
SELECT 'reach', category, count(DISTINCT customer), sum(cents * quantity) / count(*)
FROM sale JOIN product ON sale.product = product.id GROUP BY category ORDER BY category;
-- 6. The sales sorted by worth: the sum of every thousandth.
SELECT 'worth', sum(worth) FROM (
  SELECT cents * quantity AS worth, row_number() OVER (ORDER BY cents * quantity, id) AS place
  FROM sale)
WHERE place % 1000 = 0;
