Feature: Log in and out securely
  As a user, I can login and logout securely

  Background:
    Given a visitor who has registered as a buyer

  Scenario: Logging in
    When the user logs in
    Then the user sees their own account
    And the browser keeps a cookie that scripts cannot read and other sites cannot use

  Scenario: A wrong password says no more than an unknown user
    When somebody tries to log in with a wrong password
    And somebody tries to log in as a user who does not exist
    Then both are refused with "wrong_credentials" in the same words
    And nobody is logged in

  Scenario: Logging out
    Given the user is logged in
    When the user logs out
    Then the cookie they had is worth nothing any more

  Scenario: Logging out everywhere
    Given the user is logged in on a phone and on a laptop
    When the user logs out everywhere from the laptop
    Then neither the phone nor the laptop is logged in any more

  Scenario: Another site cannot act for the user
    Given the user is logged in
    When a page of another site makes the browser log the user out
    Then that is refused with "cross_site_request"
    And the user sees their own account
