Feature: Hold seats while choosing
  As a buyer, I can hold seats and places, see them in my cart, and check out what I hold

  Background:
    Given "Night Train" with one section of 2 rows of 10 seats at 3000 TWD
    And the sale is open

  Scenario: Held seats are mine at once
    When a buyer holds the seats 1-1 and 1-2
    Then the cart has the seats 1-1 and 1-2 for 6000 TWD
    And the cart lasts 10 minutes
    And the hall shows 18 seats available
    And the live map shows the seats 1-1 and 1-2 as taken

  Scenario: Somebody else wants the same seat
    Given a buyer holds the seats 1-1 and 1-2
    When another buyer holds the seats 1-2 and 1-3
    Then that is refused with "taken"
    And the refusal names the seat 1-2
    And the hall shows 18 seats available

  Scenario: From the cart to the booking
    Given a buyer holds the seats 1-1 and 1-2
    And the buyer holds the best 2 seats as well
    When the buyer checks out
    Then the booking is PENDING_PAYMENT
    And the booking has the seats of the cart and costs 12000 TWD
    And the cart is empty
    And the buyer may pay for 15 minutes

  Scenario: A change of mind
    Given a buyer holds the seats 1-1 and 1-2
    When the buyer lets the hold go
    Then the cart is empty
    And the hall shows 20 seats available

  Scenario: More time, up to a point
    Given a buyer holds the seats 1-1 and 1-2
    When the buyer asks for more time
    Then the cart lasts longer than before
    And no extension goes beyond 30 minutes

  Scenario: The price goes up while seats are held
    Given a buyer holds the seats 1-1 and 1-2
    When the price becomes 5000 TWD
    And the buyer checks out
    Then the booking has the seats of the cart and costs 6000 TWD

  Scenario: The cart is left alone
    Given a buyer holds the seats 1-1 and 1-2
    When 10 minutes pass without a checkout
    Then the hall shows 20 seats available
    And checking out is refused with "expired"
    And another buyer can hold the seats 1-1 and 1-2

  Scenario: Without a hold before
    When a buyer takes the seats 1-1 and 1-2 at once
    Then the booking is PENDING_PAYMENT
    And the cart is empty
